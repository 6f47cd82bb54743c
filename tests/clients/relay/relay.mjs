// A TURN server that nobody here wrote, on this machine: `node relay.mjs PORT USER PASSWORD`. Says "up" once it is.
import Turn from "node-turn";

const [port, user, password] = process.argv.slice(2);
const server = new Turn({
  listeningPort: Number(port),
  listeningIps: ["127.0.0.1"],
  relayIps: ["127.0.0.1"],
  authMech: "long-term",
  realm: "headstart.test",
  credentials: { [user]: password },
  debugLevel: "ERROR",
});
server.start();
console.log("up");
process.stdin.on("end", () => process.exit(0)).resume(); // ends with whoever started it
