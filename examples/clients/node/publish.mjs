// Publishes durable messages to the exchange "orders" and counts what the broker has accepted.
// What has no answer when a connection is lost is sent again on the next one, so it may be there twice.
// Usage: node publish.mjs amqp://USER:PASSWORD@HOST:PORT HOW_MANY [KEY]     KEY is the routing key, such as eu.fr.paris
import { EXCHANGE, connect, refused } from "./broker.mjs";

const [url, count, key] = process.argv.slice(2);
const connection = connect(url);
// The kind is named: where brokers make what they don't know, a name alone would become a queue.
const sender = connection.open_sender({ target: { address: EXCHANGE, capabilities: ["topic"] } });
const left = Array.from({ length: Number(count) }, (_, number) => number).reverse(); // the next one is the last
const waiting = new Map(); // delivery to number: sent, and without an answer

sender.on("sender_open", () => {
  left.push(...[...waiting.values()].reverse()); // of the connection before
  waiting.clear();
});
sender.on("sendable", () => {
  while (sender.sendable() && left.length > 0) {
    const number = left.pop();
    waiting.set(sender.send({ body: `order ${number}`, subject: key, durable: true }), number);
  }
});
sender.on("accepted", ({ delivery }) => {
  waiting.delete(delivery); // it is on the broker's disk
  if (left.length === 0 && waiting.size === 0) {
    console.log(`${count} accepted`);
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
