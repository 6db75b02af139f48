// Run against a real service: SWERVE_URL=http://127.0.0.1:8350 SWERVE_KEY=… node --test
import assert from "node:assert/strict";
import test from "node:test";

import { Swerve, SwerveError } from "swerve-client"; // by its own name, through `exports`

const url = process.env.SWERVE_URL;
const key = process.env.SWERVE_KEY;
const client = new Swerve(url + "/", { key, timeout: 5000 });
const until = async (what) => {
  for (let tries = 0; tries < 250; tries++) {
    if (await what()) return;
    await new Promise((done) => setTimeout(done, 20));
  }
  assert.fail("not within 5 s");
};
const clicks = async (query) => {
  const answer = await fetch(`${url}/v1/queries/${encodeURIComponent(query)}`, { headers: { authorization: `Bearer ${key}` } });
  const { arms } = await answer.json();
  return Object.fromEntries(arms.filter((arm) => arm.clicks).map((arm) => [arm.id, arm.clicks]));
};

test("a ranking and its clicks", async () => {
  const answer = await client.rank("node", ["a", { id: "b", score: 0.5 }, "c"], { session: "s-1", slots: 2 });
  assert.equal(answer.degraded, false);
  assert.deepEqual([...answer.ranking].sort(), ["a", "b", "c"]);
  assert.equal(await client.feedback(answer.decision, answer.ranking[0]), "learned");
  assert.equal(await client.feedback(answer.decision, [1, { result: answer.ranking[0], id: "e1" }]), "learned"); // repeats
  assert.deepEqual(await clicks("node"), { [answer.ranking[0]]: 1 });
});

test("a beacon arrives without a key", async () => {
  const page = new Swerve(url);
  const answer = await client.rank("beacon in node", ["a", "b"]);
  assert.equal(page.beacon(answer.decision, answer.ranking[0]), true);
  await until(async () => (await clicks("beacon in node"))[answer.ranking[0]] === 1);
  assert.equal(page.beacon(null, "a"), false);
});

test("search goes on without the service", async () => {
  const away = new Swerve("http://127.0.0.1:9", { timeout: 200, retries: 1 });
  const answer = await away.rank("q", ["x", { id: "y" }]);
  assert.deepEqual([answer.ranking, answer.degraded, answer.decision], [["x", "y"], true, null]);
  assert.match(answer.reason, /./);
  assert.equal(await away.feedback(null, "x"), null);
  await assert.rejects(away.feedback("some decision", "x"), SwerveError);
  assert.equal(away.beacon("some decision", "x"), true); // nobody waits for it
});

test("what is refused says why", async () => {
  const refused = await client.rank("  ", ["a"]);
  assert.deepEqual([refused.degraded, refused.ranking], [true, ["a"]]);
  assert.match(refused.reason, /white space/);
  await assert.rejects(client.feedback("A".repeat(132), "a"), { name: "SwerveError", status: 403, code: "forged" });
  const stranger = new Swerve(url, { retries: 0 });
  assert.match((await stranger.rank("q", ["a"])).reason, /API key/);
});
