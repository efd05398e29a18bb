// Publishes durable messages to the exchange "orders" and counts what the broker has accepted.
// Usage: node publish.mjs amqp://USER:PASSWORD@HOST:PORT HOW_MANY [KEY]     KEY is the routing key, such as eu.fr.paris
import { EXCHANGE, connect, refused } from "./broker.mjs";

const [url, count, key] = process.argv.slice(2);
const connection = connect(url);
// The kind is named: where brokers make what they don't know, a name alone would become a queue.
const sender = connection.open_sender({ target: { address: EXCHANGE, capabilities: ["topic"] } });
let sent = 0;
let accepted = 0;

sender.on("sendable", () => {
  while (sender.sendable() && sent < Number(count)) {
    sender.send({ body: `order ${sent}`, subject: key, durable: true });
    sent += 1;
  }
});
sender.on("accepted", () => {
  accepted += 1; // it is on the broker's disk
  if (accepted === Number(count)) {
    console.log(`${accepted} accepted`);
    connection.close();
  }
});
for (const outcome of ["rejected", "released"]) {
  sender.on(outcome, ({ delivery }) => {
    refused(delivery.remote_state?.error);
    connection.close();
  });
}
sender.on("sender_error", () => {
  refused(sender.error);
  connection.close();
});
