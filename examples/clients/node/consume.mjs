// Consumes from the shared durable subscription "billing" of the exchange "orders", as a JMS client without ClientID does.
// Usage: node consume.mjs amqp://USER:PASSWORD@HOST:PORT [HOW_MANY]
import { connect, refused, sharedDurable } from "./broker.mjs";

const [url, count] = process.argv.slice(2);
let left = count ? Number(count) : Infinity;
const connection = connect(url);
const receiver = connection.open_receiver({ ...sharedDurable("billing", 1), credit_window: 10 });

receiver.on("message", ({ message, delivery }) => {
  if (left === 0) return; // came while we were leaving; without an outcome it goes to another consumer
  console.log(`${message.body}${message.delivery_count ? " (again)" : ""}`);
  delivery.accept();
  left -= 1;
  if (left === 0) {
    receiver.detach(); // not close(): closing would end the subscription
    connection.close();
  }
});
receiver.on("receiver_error", () => {
  refused(receiver.error);
  connection.close();
});
