// Requests to the service besides the stream.

/** Send a request to the same origin; return the JSON of the answer, or throw a readable error. A body makes it a POST. */
export async function ask(path, body, key, method = body === undefined ? "GET" : "POST") {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const options = { method, headers };
  if (body !== undefined) options.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The service cannot be reached.");
  }
  const said = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(said?.error?.message ?? `The service answered ${answer.status}.`);
  return said;
}
