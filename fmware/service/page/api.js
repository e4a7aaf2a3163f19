// Requests to the service that the page came from, with the tab's token; nobody else is asked.

const KEY = "fmware-token";

/** What the service said no with: a code, what, where, and what to do. */
export class Refused extends Error {
  constructor(status, about) {
    super(about.detail ?? `answered ${status}`);
    this.status = status;
    this.about = about;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

function headers(more) {
  const known = token.get();
  return known ? { ...more, Authorization: `Bearer ${known}` } : more;
}

async function checked(answer) {
  if (answer.ok) return answer;
  const about = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, about);
}

export async function get(path) {
  const answer = await fetch(path, { headers: headers({}), cache: "no-store" });
  return (await checked(answer)).json();
}

export async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
  });
  return (await checked(answer)).json();
}

/**
 * Server-sent events, read by hand: an EventSource cannot send a token. Comes back when the stream
 * ends; `after` is the position to go on from, and the last one that was seen is returned.
 */
export async function events(path, after, signal, take) {
  const more = after === null ? {} : { "Last-Event-ID": String(after) };
  const answer = await checked(await fetch(path, { headers: headers(more), signal }));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return after;
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      const event = parsed(block);
      if (event.id !== null) after = event.id;
      if (event.data) take(event);
    }
  }
}

function parsed(block) {
  const event = { id: null, name: "message", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    const [key, value] = [line.slice(0, at), line.slice(at + 2)];
    if (key === "id") event.id = Number(value);
    else if (key === "event") event.name = value;
    else if (key === "data") event.data += value;
  }
  return event;
}
