// Ends the shared durable subscription NAME, with what it holds. Refused while anybody consumes from it.
// Usage: node unsubscribe.mjs amqp://USER:PASSWORD@HOST:PORT NAME
// Prints "ended", or "refused: " and why.
import { connect, refused } from "./broker.mjs";

const [url, subscription] = process.argv.slice(2);
const connection = connect(url);

// A link without a source looks the subscription up; "|global" means that of all clients, not of this container.
const receiver = connection.open_receiver({ name: `${subscription}|global`, credit_window: 0 });
receiver.on("receiver_open", () => {
  if (receiver.source) receiver.close(); // found: the answer carries its source
});
receiver.on("receiver_error", () => refused(receiver.error));
receiver.on("receiver_close", () => {
  if (!receiver.error) console.log("ended");
  connection.close();
});
