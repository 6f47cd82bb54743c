// @openai/agents for JavaScript, unmodified: over a WebSocket, and over WebRTC through @roamhq/wrtc.
import { readFileSync } from "node:fs";
import wrtc from "@roamhq/wrtc";
import { z } from "zod";

Object.assign(globalThis, {
  RTCPeerConnection: wrtc.RTCPeerConnection,
  MediaStream: wrtc.MediaStream,
});
const { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebRTC, OpenAIRealtimeWebSocket, tool } =
  await import("@openai/agents/realtime");

const FAKE_URL = process.env.HEADSTART_FAKE_URL;
const TINY_URL = process.env.HEADSTART_TINY_URL;
const ROOT = process.env.HEADSTART_ROOT;
const STEP_LIMIT_MS = 90_000;
const ANSWER_BEGINS = "The first thing to say"; // what the fake engine says (tests/clients/servers.py)
const HEARD = "the quick brown fox";
const RATE_HZ = 24_000;
const WAV_HEADER_BYTES = 44;

const question = readFileSync(`${ROOT}/headstart/clips/capital.wav`).subarray(WAV_HEADER_BYTES);
const photo = readFileSync(`${ROOT}/tests/data/photos/chelsea.jpg`).toString("base64");

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function check(condition, ...facts) {
  if (!condition) throw new Error(facts.map((fact) => JSON.stringify(fact)).join(" "));
}

const called = [];
const weather = tool({
  name: "weather",
  description: "Tells the weather in a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    called.push(city);
    return `Sunny in ${city}, as always.`;
  },
});

/** One session with its events; an error of any kind fails whoever waits. */
class Talk {
  constructor(transport, tools = []) {
    const agent = new RealtimeAgent({ name: "guide", instructions: "You are brief.", tools });
    this.session = new RealtimeSession(agent, { transport });
    this.audioBytes = 0;
    this.events = [];
    this.happened = new Set();
    this.history = [];
    this.session.on("error", (error) => (this.problem ??= error));
    this.session.on("audio", (event) => (this.audioBytes += event.data.byteLength));
    this.session.on("history_updated", (history) => (this.history = history));
    this.session.on("transport_event", (event) => {
      this.events.push(event);
      if (event.type === "error") this.problem ??= event;
    });
    for (const name of ["agent_end", "audio_interrupted", "agent_tool_end"]) {
      this.session.on(name, () => this.happened.add(name));
    }
  }

  async until(what, condition) {
    while (!condition()) {
      check(!this.problem, what, this.problem, String(this.problem?.error?.stack ?? ""));
      check(!this.closed, "closed before", what);
      await sleep(20);
    }
  }

  saw(type) {
    return this.events.find((event) => event.type === type);
  }

  said() {
    return this.history
      .filter((item) => item.type === "message" && item.role === "assistant")
      .flatMap((item) => item.content.map((part) => part.transcript ?? part.text ?? ""))
      .join(" ");
  }

  heard() {
    return this.history
      .filter((item) => item.type === "message" && item.role === "user")
      .flatMap((item) => item.content.map((part) => part.transcript ?? ""));
  }
}

// --- the two transports -----------------------------------------------------------------------

async function overWebSocket(url, tools) {
  const transport = new OpenAIRealtimeWebSocket({
    url: url.replace("http", "ws") + "/v1/realtime?model=small",
    useInsecureApiKey: true,
  });
  const talk = new Talk(transport, tools);
  await talk.session.connect({ apiKey: "k" });
  talk.speak = async (pcm) => {
    const packet = RATE_HZ / 25 * 2; // 40 ms of s16
    const began = performance.now();
    for (let at = 0; at < pcm.length && !talk.closed; at += packet) {
      await sleep(began + at / 48 - performance.now());
      if (talk.closed) return;
      const piece = pcm.subarray(at, at + packet);
      talk.session.sendAudio(new Uint8Array(piece).buffer);
    }
  };
  talk.close = () => {
    talk.closed = true;
    talk.session.close();
  };
  return talk;
}

async function overWebRTC(url, tools) {
  const source = new wrtc.nonstandard.RTCAudioSource();
  const track = source.createTrack();
  let sink;
  const state = { samples: 0 };
  const transport = new OpenAIRealtimeWebRTC({
    baseUrl: `${url}/v1/realtime/calls`,
    mediaStream: new wrtc.MediaStream([track]),
    audioElement: {},
    useInsecureApiKey: true,
    changePeerConnection: (connection) => {
      connection.addEventListener("track", (event) => {
        sink = new wrtc.nonstandard.RTCAudioSink(event.track);
        sink.ondata = ({ samples }) => {
          if (samples.some((sample) => Math.abs(sample) > 500)) state.samples += samples.length;
        };
      });
      return connection;
    },
  });
  const talk = new Talk(transport, tools);
  await talk.session.connect({ apiKey: "k" });
  Object.defineProperty(talk, "playedSamples", { get: () => state.samples });
  talk.speak = async (pcm) => {
    const samples = new Int16Array(new Uint8Array(pcm).buffer);
    const frame = RATE_HZ / 100; // 10 ms, as libwebrtc has it
    const began = performance.now();
    for (let at = 0; at + frame <= samples.length && !talk.closed; at += frame) {
      await sleep(began + at / 24 - performance.now());
      source.onData({
        samples: samples.slice(at, at + frame),
        sampleRate: RATE_HZ,
        bitsPerSample: 16,
        channelCount: 1,
        numberOfFrames: frame,
      });
    }
  };
  talk.close = () => {
    talk.closed = true;
    talk.session.close();
    sink?.stop();
    track.stop();
  };
  return talk;
}

const silence = (ms) => Buffer.alloc(ms * 48);
const spokenQuestion = (silenceMs) => Buffer.concat([question, silence(silenceMs)]);

async function within(open, url, tools, then) {
  const talk = await open(url, tools);
  try {
    return await then(talk);
  } finally {
    talk.close();
  }
}

// --- the turns --------------------------------------------------------------------------------

const textTurn = (open) => () =>
  within(open, FAKE_URL, [], async (talk) => {
    talk.session.sendMessage("Hello");
    await talk.until("agent_end", () => talk.happened.has("agent_end"));
    await talk.until("the answer in the history", () => talk.said().includes(ANSWER_BEGINS));
    if (open === overWebSocket) check(talk.audioBytes > 24_000, talk.audioBytes);
    else await talk.until("sound on the track", () => talk.playedSamples > 48_000);
    return `${talk.audioBytes || 2 * talk.playedSamples} bytes of sound`;
  });

const audioTurn = (open) => () =>
  within(open, FAKE_URL, [], async (talk) => {
    talk.speak(spokenQuestion(9_000));
    await talk.until("agent_end", () => talk.happened.has("agent_end"));
    await talk.until("what was heard", () => talk.heard().some((text) => text.startsWith(HEARD)));
    check(talk.said().includes(ANSWER_BEGINS), talk.said());
    return `heard ${JSON.stringify(talk.heard()[0])}`;
  });

const bargeIn = (open) => () =>
  within(open, FAKE_URL, [], async (talk) => {
    talk.session.sendMessage("Hello");
    const audible = () => (open === overWebSocket ? talk.audioBytes : talk.playedSamples) > 0;
    await talk.until("the first sound", audible);
    talk.speak(spokenQuestion(500));
    // Over WebRTC the server plays: it stops by itself, and the client is only told.
    if (open === overWebSocket)
      await talk.until("audio_interrupted", () => talk.happened.has("audio_interrupted"));
    else await talk.until("cleared", () => talk.saw("output_audio_buffer.cleared"));
    const cut = "conversation.item.truncated";
    await talk.until(cut, () => talk.saw(cut));
    return `cut at ${talk.saw(cut).audio_end_ms} ms`;
  });

const goesOn = (open) => () =>
  within(open, FAKE_URL, [], async (talk) => {
    const cut = 900 * 48;
    const pieces = [question.subarray(0, cut), silence(900), question.subarray(cut), silence(9_000)];
    talk.speak(Buffer.concat(pieces));
    const count = (type) => talk.events.filter((event) => event.type === type).length;
    await talk.until("both deleted", () => count("conversation.item.deleted") === 2);
    await talk.until("the second answer", () => count("response.done") === 2);
    const transcripts = talk.events
      .filter((event) => event.type === "conversation.item.input_audio_transcription.completed")
      .map((event) => event.transcript);
    const [first, whole] = transcripts;
    check(whole.startsWith(first) && whole.length > first.length, transcripts);
    const messages = () => talk.history.filter((item) => item.type === "message");
    await talk.until("one message", () => talk.heard().length === 1 && talk.heard()[0] === whole);
    check(messages().map((item) => item.role).join() === "user,assistant", talk.history);
    return `${JSON.stringify(first)} became ${JSON.stringify(whole)}`;
  });

const stopped = (open) => () =>
  within(open, FAKE_URL, [], async (talk) => {
    talk.session.sendMessage("Hello");
    const audible = () => (open === overWebSocket ? talk.audioBytes : talk.playedSamples) > 0;
    await talk.until("the first sound", audible);
    talk.session.interrupt();
    await talk.until("response.done", () => talk.saw("response.done"));
    const { status } = talk.saw("response.done").response;
    check(status === "cancelled", status);
    talk.session.sendMessage("Go on");
    const again = () => talk.events.filter((event) => event.type === "response.done").length > 1;
    await talk.until("the next answer", again);
    return "cancelled by the client, then answered again";
  });

const toolTurn = (open) => () =>
  within(open, FAKE_URL, [weather], async (talk) => {
    called.length = 0;
    talk.session.sendMessage("What is the weather in Rome?");
    await talk.until("agent_tool_end", () => talk.happened.has("agent_tool_end"));
    check(called.length === 1 && called[0] === "Rome", called);
    await talk.until("the result, spoken", () => talk.said().includes("Sunny in Rome"));
    return `called with ${JSON.stringify(called)}, said ${JSON.stringify(talk.said())}`;
  });

const picture = (open) => () =>
  within(open, FAKE_URL, [], async (talk) => {
    talk.session.addImage(`data:image/jpeg;base64,${photo}`, { triggerResponse: true });
    await talk.until("agent_end", () => talk.happened.has("agent_end"));
    await talk.until("the answer in the history", () => talk.said().includes(ANSWER_BEGINS));
    return "answered";
  });

const realModel = (open) => () =>
  within(open, TINY_URL, [], async (talk) => {
    talk.speak(spokenQuestion(9_000));
    await talk.until("agent_end", () => talk.happened.has("agent_end"));
    await talk.until("the right answer", () => talk.said().includes("Paris"));
    return JSON.stringify(talk.said());
  });

const steps = {};
for (const [name, open] of [["WebSocket", overWebSocket], ["WebRTC", overWebRTC]]) {
  steps[`${name}: text`] = textTurn(open);
  steps[`${name}: audio`] = audioTurn(open);
  steps[`${name}: barge-in`] = bargeIn(open);
  steps[`${name}: goes on`] = goesOn(open);
  steps[`${name}: interrupt()`] = stopped(open);
  steps[`${name}: tool`] = toolTurn(open);
  steps[`${name}: picture`] = picture(open);
  if (TINY_URL) steps[`${name}: real model`] = realModel(open);
}

let failed = false;
const only = process.argv[2];
for (const [name, step] of Object.entries(steps)) {
  if (only && !name.includes(only)) continue;
  const began = performance.now();
  let outcome;
  try {
    const limit = sleep(STEP_LIMIT_MS).then(() => check(false, "not done in time"));
    outcome = `ok      ${name}: ${await Promise.race([step(), limit])}`;
  } catch (error) {
    failed = true;
    outcome = `FAILED  ${name}: ${error.message}`;
  }
  const tookS = ((performance.now() - began) / 1000).toFixed(1);
  console.log(`openai-agents-js: ${outcome} (${tookS} s)`);
}
process.exit(failed ? 1 : 0); // libwebrtc's threads would keep the process
