// Makes the shared durable subscription NAME of the exchange "orders", unless it is there, and consumes by two receivers.
// Usage: node share.mjs amqp://USER:PASSWORD@HOST:PORT NAME HOW_MANY
// Prints "ready", then "RECEIVER BODY" per message; leaves after HOW_MANY, and the subscription goes on collecting.
import { connect, refused, sharedDurable } from "./broker.mjs";

const [url, subscription, count] = process.argv.slice(2);
let left = Number(count);
let waiting = 2;
const connection = connect(url);

// The two links' names differ behind "|". They could as well be in two processes.
for (const number of [1, 2]) {
  const receiver = connection.open_receiver({ ...sharedDurable(subscription, number), credit_window: 1 });
  receiver.on("receiver_open", () => {
    waiting -= 1;
    if (waiting === 0) console.log("ready");
  });
  receiver.on("message", ({ message, delivery }) => {
    if (left === 0) return; // came while we were leaving; without an outcome it goes to another consumer
    console.log(`${number} ${message.body}`);
    delivery.accept();
    left -= 1;
    if (left === 0) connection.close(); // without closing the links, which would end the subscription
  });
  receiver.on("receiver_error", () => {
    refused(receiver.error);
    connection.close();
  });
}
