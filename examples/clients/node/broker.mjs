// The connection, and the source of a shared durable subscription, for all examples of this folder.
import rhea from "rhea";

export const EXCHANGE = "orders";

/** Connects to amqp://USER:PASSWORD@HOST:PORT; rhea reconnects by itself if the connection breaks. */
export function connect(url) {
  const { hostname: host, port, username, password } = new URL(url);
  return rhea.connect({ host, port, username, password });
}

/** The subscription's name is what stands before "|"; what follows only makes link names differ. */
export function sharedDurable(subscription, suffix) {
  return {
    name: `${subscription}|${suffix}`,
    source: {
      address: EXCHANGE,
      durable: 2,
      expiry_policy: "never",
      capabilities: ["topic", "shared", "global"],
    },
    autoaccept: false, // each message is accepted after it was handled, so that a crash means another consumer gets it
  };
}

export function refused(error) {
  console.log(`refused: ${error.description}`);
}
