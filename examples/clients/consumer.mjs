// Consumes from the shared durable subscription "billing" of the exchange "orders".
// Usage: npm install rhea; node consumer.mjs HOST PORT
import rhea from "rhea";

const [host, port] = process.argv.slice(2);
rhea.on("message", ({ message }) => {
  console.log(message.body, message.delivery_count ? "(again)" : "");
});
rhea.on("receiver_error", ({ receiver }) => console.error("refused:", receiver.error));
rhea.connect({ host, port, username: "guest", password: "guest" }).open_receiver({
  name: "billing|1", // the subscription's name is what stands before "|"
  source: {
    address: "orders",
    durable: 2,
    expiry_policy: "never",
    capabilities: ["topic", "shared", "global"],
  },
  credit_window: 100,
});
