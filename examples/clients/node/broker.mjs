// The connection, and the source of a shared durable subscription, for all examples of this folder.
import rhea from "rhea";
import WebSocket from "ws";

export const EXCHANGE = "orders";

/**
 * Connects to amqp://USER:PASSWORD@HOST:PORT, amqps:// (TLS), ws:// or wss:// (AMQP over WebSocket). rhea logs in by PLAIN, which a broker
 * takes over TLS, and reconnects by itself if the connection breaks.
 */
export function connect(url) {
  rhea.on("connection_error", ({ error }) => {
    if (error.condition !== "amqp:connection:forced") refused(error); // a wrong password; "forced" is a broker that stops
  });
  rhea.on("disconnected", ({ error, reconnecting }) => {
    if (reconnecting) console.error(`no connection to the broker, trying again: ${error?.message || error?.code || "it closed the connection"}`);
  });
  const { protocol, hostname: host, port, username: user, password: secret } = new URL(url);
  const [username, password] = [user, secret].map(decodeURIComponent); // a password with @ is written with %40
  if (protocol === "ws:" || protocol === "wss:") {
    const webSocket = rhea.websocket_connect(WebSocket);
    return rhea.connect({ connection_details: webSocket(`${protocol}//${host}:${port}/`, ["amqp"]), host, username, password });
  }
  return rhea.connect({ transport: protocol === "amqps:" ? "tls" : "tcp", host, port, username, password });
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

/** Tells what the broker said, or rhea about it; the exit code will be 1. */
export function refused(error) {
  console.log(`refused: ${error?.description ?? "without a reason"}`);
  process.exitCode = 1;
}
