"use strict";
// Web UI: a chat with the server of this page, and the server's gauges. Model output is shown as
// text, never as markup. The API key is kept only in its input field.
const $ = (id) => document.getElementById(id);
const POLL_MS = 2000;

const state = {
  turns: [],        // {role, content}
  chat: true,       // the model has a chat template; false: plain completions
  running: null,    // AbortController of the response in progress
  scraped: null,    // last values of /metrics
  metrics: true,    // this key may read them
};

function headers() {
  const out = { "Content-Type": "application/json" };
  const key = $("key").value.trim();
  if (key) out.Authorization = `Bearer ${key}`;
  return out;
}

class RefusedError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function ask(path, options = {}) {
  const response = await fetch(path, { headers: headers(), cache: "no-store", ...options });
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const error = body.error || {};
  throw new RefusedError(response.status, error.message || `the server returned status ${response.status}`, error.code);
}

// --- server ---

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

function explain(error) {
  if (error.status === 401 || error.status === 403) return "The server needs an API key: enter it under Settings.";
  if (error.code === "context_length_exceeded" && state.turns.length > 2)
    return `${error.message}. Clear the conversation to begin anew.`;
  if (error instanceof RefusedError) return error.message;
  return "The server cannot be reached.";
}

async function connect() {
  state.metrics = true;
  try {
    const models = (await (await ask("v1/models")).json()).data;
    $("model-id").replaceChildren(...models.map((model) => new Option(model.id, model.id)));
    state.chat = await hasTemplate(models[0].id);
    notice(state.chat ? "" : "This model has no chat template: it continues the text you write.");
    $("system").disabled = !state.chat;
    $("input").placeholder = state.chat ? "Message" : "Text to continue";
    $("model").textContent = models.map((model) => model.id).join(", ");
  } catch (error) {
    notice(explain(error));
    if (error.status === 401 || error.status === 403) $("settings").open = true;
    $("model").textContent = "not connected";
  }
  poll();
}

async function hasTemplate(model) {
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "a" }] });
  try {
    await ask("tokenize", { method: "POST", body });
  } catch (error) {
    if (error.code === "no_chat_template") return false;
  }
  return true;
}

// --- responses ---

// Tokens left in the model's context after a prompt. A completion without "Max tokens" requests
// this number, because the server's default is 16 tokens; for a chat the default fills the context.
async function room(model, prompt) {
  const body = JSON.stringify({ model, prompt });
  const { count, max_model_len: most } = await (await ask("tokenize", { method: "POST", body })).json();
  return Math.max(1, most - count);
}

async function requestBody() {
  const body = { model: $("model-id").value, stream: true, stream_options: { include_usage: true } };
  for (const [name, id] of [["temperature", "temperature"], ["top_p", "top-p"], ["max_tokens", "max-tokens"], ["seed", "seed"]])
    if ($(id).value !== "") body[name] = Number($(id).value);
  if (!state.chat) {
    body.prompt = state.turns.map((turn) => turn.content).join("");
    body.max_tokens ??= await room(body.model, body.prompt);
    return body;
  }
  const system = $("system").value.trim();
  body.messages = state.turns.filter((turn) => turn.content !== "");
  if (system) body.messages.unshift({ role: "system", content: system });
  return body;
}

// Yields the data of each server-sent event of a streaming response.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6);
  }
}

function textOf(chunk) {
  const choice = (chunk.choices || [])[0];
  if (!choice) return "";
  return state.chat ? (choice.delta && choice.delta.content) || "" : choice.text || "";
}

async function streamResponse(shown) {
  let first = null, usage = null, text = "", ended = false, reason = null;
  const path = state.chat ? "v1/chat/completions" : "v1/completions", signal = state.running.signal;
  const body = await requestBody(), started = performance.now();
  const response = await ask(path, { method: "POST", body: JSON.stringify(body), signal });
  for await (const data of events(response)) {
    if (data === "[DONE]") { ended = true; break; }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new RefusedError(500, chunk.error.message, chunk.error.code);
    if (chunk.usage) usage = chunk.usage;
    if (chunk.choices && chunk.choices[0]) reason = chunk.choices[0].finish_reason || reason;
    const more = textOf(chunk);
    if (more && first === null) first = performance.now();
    text += more;
    shown.write(text);
  }
  if (!ended) throw new RefusedError(502, "the response broke off");
  const cut = reason !== "length" ? [] : [$("max-tokens").value !== "" ? "cut off at max tokens" : "cut off: the context is full"];
  if (first === null) return ["no text", ...cut].join(", ");
  const facts = [`first token after ${duration((first - started) / 1e3)}`];
  // Rate over the whole response: tokens sent at once would leave no time after the first one.
  const tokens = usage ? usage.completion_tokens : 0, seconds = (performance.now() - started) / 1e3;
  if (tokens > 0) facts.unshift(tokens === 1 ? "1 token" : `${tokens} tokens`);
  if (tokens > 1) facts.push(`${rate(tokens / seconds)} tokens/s`);
  return [...facts, ...cut].join(", ");
}

async function submit() {
  const said = $("input").value;
  if (state.running || said.trim() === "") return;
  if (!$("parameters").checkValidity()) $("settings").open = true;  // opened, to show the invalid field
  if (!$("parameters").reportValidity()) return;
  $("input").value = "";
  grow();
  const asked = show({ role: "user", content: said });
  const shown = show({ role: "assistant", content: "" });
  shown.element.classList.add("busy");
  busy(new AbortController());
  try {
    const facts = await streamResponse(shown);
    shown.finish();
    shown.facts(facts);
  } catch (error) {
    shown.finish();
    if (error.name === "AbortError") {
      shown.facts("stopped");
    } else {
      shown.fail(explain(error));
      if (error.status === 401 || error.status === 403) $("settings").open = true;
    }
  }
  // A message without a response is not sent again with the next one.
  if (shown.turn.content === "") state.turns = state.turns.filter((turn) => turn !== asked.turn && turn !== shown.turn);
  busy(null);
}

function busy(controller) {
  state.running = controller;
  $("send").hidden = controller !== null;
  $("stop").hidden = controller === null;
  $("log").setAttribute("aria-busy", controller !== null);
  $(controller ? "stop" : "input").focus({ preventScroll: true });
}

// Adds a turn to the conversation; returns functions that change it.
function show(turn) {
  state.turns.push(turn);
  $("empty").hidden = true;
  const element = document.createElement("article"), title = document.createElement("h2"), text = document.createElement("div");
  element.className = `turn ${turn.role}`;
  title.textContent = turn.role === "user" ? "You" : "Model";
  text.className = "text";
  text.textContent = turn.content;
  element.append(title, text);
  $("log").append(element);
  let drawn = 0;  // animation frame of the pending redraw; 0: none
  const redraw = () => {
    drawn = 0;
    text.textContent = turn.content;
    scroll(false);
  };
  const scroll = (always) => {
    const log = $("log");
    if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
  };
  scroll(true);
  return {
    element, turn,
    // Tokens may arrive faster than they can be drawn.
    write(content) {
      turn.content = content;
      if (drawn === 0) drawn = requestAnimationFrame(redraw);
    },
    finish() {
      cancelAnimationFrame(drawn);
      redraw();
      element.classList.remove("busy");
    },
    fail(why) {
      element.classList.add("wrong");
      if (turn.content) this.facts(why); else text.textContent = why;
    },
    facts(content) {
      const line = document.createElement("p");
      line.className = "facts";
      line.textContent = content;
      element.append(line);
      scroll(false);
    },
  };
}

function grow() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight + 2}px`;
}

// --- gauges ---

// Sums the series of each name over their labels.
function parseMetrics(text) {
  const out = {};
  for (const line of text.split("\n")) {
    const found = /^([a-z_:]+)(?:\{.*\})? (\S+)$/i.exec(line);
    if (found) out[found[1]] = (out[found[1]] || 0) + Number(found[2]);
  }
  return out;
}

const rate = (value) => (value < 10 ? value.toFixed(1) : Math.round(value).toString());

function duration(seconds) {
  if (seconds < 0.01) return `${(seconds * 1e3).toFixed(1)} ms`;
  return seconds < 1 ? `${Math.round(seconds * 1e3)} ms` : `${seconds.toFixed(1)} s`;
}

// Rates and means are over the time since the previous values.
function draw(now, before) {
  const set = (id, text) => { $(id).textContent = text; };
  const value = (name) => now.values[name] || 0;
  const more = (name) => value(name) - (before.values[name] || 0);
  set("g-running", String(value("vllm:num_requests_running")));
  set("g-waiting", String(value("vllm:num_requests_waiting")));
  // Mean over the replicas, whose caches have the same size.
  const cache = value("vllm:kv_cache_usage_perc") / (value("vllm:cache_config_info") || 1);
  set("g-cache", `${(100 * cache).toFixed(cache < 0.1 ? 1 : 0)} %`);
  $("g-cache-bar").value = cache;
  if (before === now) return;
  const perSecond = Math.max(0, more("vllm:generation_tokens_total")) / ((now.time - before.time) / 1e3);
  set("g-rate", rate(perSecond));
  for (const [id, name] of [["g-ttft", "vllm:time_to_first_token_seconds"], ["g-itl", "vllm:inter_token_latency_seconds"]]) {
    const count = more(`${name}_count`);
    if (count > 0) set(id, duration(more(`${name}_sum`) / count));
  }
}

async function poll() {
  if (document.hidden || !state.metrics) return;
  try {
    const now = { values: parseMetrics(await (await ask("metrics")).text()), time: performance.now() };
    draw(now, state.scraped || now);
    state.scraped = now;
  } catch (error) {
    state.scraped = null;
    // Metrics need an admin key, unless the server opens them; after a refusal, polling stops.
    state.metrics = error.status !== 401 && error.status !== 403;
    for (const id of ["g-running", "g-waiting", "g-cache", "g-rate", "g-ttft", "g-itl"]) $(id).textContent = "–";
  }
  $("gauges").hidden = !state.metrics;
}

// --- events ---

$("form").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
$("parameters").addEventListener("submit", (event) => event.preventDefault());
$("input").addEventListener("input", grow);
$("input").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
$("stop").addEventListener("click", () => state.running && state.running.abort());
$("key").addEventListener("change", connect);
$("clear").addEventListener("click", () => {
  if (state.running) state.running.abort();
  state.turns = [];
  for (const turn of document.querySelectorAll(".turn")) turn.remove();
  $("empty").hidden = false;
});
document.addEventListener("visibilitychange", () => { state.scraped = null; poll(); });
if (matchMedia("(min-width: 56.01rem)").matches) $("settings").open = true;
connect();
setInterval(poll, POLL_MS);
