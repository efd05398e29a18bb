// What rhea does that the examples don't: a line per corner. Usage: node rhea_corners.mjs PORT
import rhea from "rhea";

const connection = rhea.connect({ port: Number(process.argv[2]), username: "guest", password: "guest", reconnect: false });
const next = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve));
const say = (...words) => console.log(words.join(" "));

async function send(address, message) {
  const sender = connection.open_sender(address);
  await next(sender, "sendable");
  sender.send(message);
  const outcome = await Promise.race(["accepted", "rejected"].map((kind) => next(sender, kind).then(() => kind)));
  sender.close();
  return outcome;
}

async function footer() {
  const outcome = await send("footers", { body: "b", footer: { "x-crc": 5 } }); // rhea writes it before the body
  const receiver = connection.open_receiver("footers");
  const { message } = await next(receiver, "message");
  receiver.close();
  say("footer", outcome, message.body, message.footer["x-crc"]);
}

async function drains() {
  await send("drained", { body: "only" });
  const receiver = connection.open_receiver({ source: "drained", credit_window: 0 });
  await next(receiver, "receiver_open");
  const got = next(receiver, "message");
  const done = next(receiver, "receiver_drained");
  receiver.add_credit(5);
  receiver.drain_credit();
  await done;
  say("drained", (await got).message.body, receiver.credit);
  receiver.close();
}

async function outcomes() {
  await send("outcomes", { body: "again" });
  const receiver = connection.open_receiver({ source: "outcomes", autoaccept: false, credit_window: 1 });
  const counts = [];
  for (const answer of [
    (delivery) => delivery.release(),
    (delivery) => delivery.modified({ delivery_failed: true, message_annotations: { "x-opt-tried": "once" } }),
    (delivery) => delivery.accept(),
  ]) {
    const { message, delivery } = await next(receiver, "message");
    counts.push(`${message.delivery_count ?? 0}${message.message_annotations?.["x-opt-tried"] ?? ""}`);
    answer(delivery);
  }
  receiver.close();
  say("outcomes", ...counts);
}

async function requestAndReply() {
  const answers = connection.open_receiver({ source: { dynamic: true } });
  await next(answers, "receiver_open");
  const server = connection.open_receiver("requests");
  server.once("message", ({ message }) =>
    connection.send({ to: message.reply_to, correlation_id: message.message_id, body: message.body.toUpperCase() }),
  );
  const answer = next(answers, "message");
  await send("requests", { message_id: "m-1", reply_to: answers.source.address, body: "hello" });
  const { message } = await answer;
  answers.close();
  server.close();
  say("reply", message.correlation_id, message.body);
}

async function settledSecond() {
  await send("second", { body: "once" });
  const receiver = connection.open_receiver({ source: "second", rcv_settle_mode: 1, autoaccept: false, autosettle: false });
  const { delivery } = await next(receiver, "message");
  const settled = next(receiver, "settled");
  delivery.update(false, rhea.message.accepted().described());
  await settled;
  delivery.update(true);
  receiver.close();
  say("second settled");
}

async function large() {
  const outcome = await send("large", { body: rhea.message.data_section(Buffer.alloc(1_500_000, "x")) });
  const receiver = connection.open_receiver("large");
  const { message } = await next(receiver, "message");
  receiver.close();
  say("large", outcome, message.body.content.length);
}

for (const corner of [footer, drains, outcomes, requestAndReply, settledSecond, large]) {
  await corner();
}
connection.close();
