// A server, compiled without the types of a browser. Each line after an `@ts-expect-error` is refused, for the reason named there.
import { Swerve, SwerveError, type Candidate, type Options, type Ranking, type RankOptions, type Status } from "swerve-client";

const options: Options = { key: "KEY", namespace: "toys", timeout: 100, retries: 0 };
const swerve = new Swerve("http://127.0.0.1:8350", options);
const candidates: readonly Candidate[] = ["team-page", { id: "storm-warning", published_at: 1727359200, score: null }];
const more: RankOptions = { session: "s-81", slots: 2, signals: { news: 12, stock: null }, query_id: "q-1" };

export async function search(query: string): Promise<readonly string[]> {
  const answer: Ranking = await swerve.rank(query, candidates, more);
  const first: number | undefined = answer.propensities?.[0];
  const why: string | undefined = answer.degraded ? answer.reason : answer.guarded;
  const status: Status | null = await swerve.feedback(answer.decision, answer.ranking[0]);
  return [...answer.ranking, String(first), String(why), status ?? "no decision"];
}

export function told(trouble: unknown): string {
  if (!(trouble instanceof SwerveError)) return "not ours";
  const name: "SwerveError" = trouble.name;
  return `${name} ${(trouble.status ?? 0).toFixed()} ${trouble.code?.toUpperCase()} ${trouble.message}`;
}

export async function wrong(): Promise<void> {
  // @ts-expect-error TS2554: candidates are needed
  await swerve.rank("hurricane");
  // @ts-expect-error TS2322: ids are texts
  await swerve.rank("hurricane", [1, 2]);
  // @ts-expect-error TS2561: `sesion` is misspelt
  await swerve.rank("hurricane", candidates, { sesion: "s-81" });
  const answer = await swerve.rank("hurricane", candidates);
  // @ts-expect-error TS18047: there may be no decision
  answer.decision.length;
  // @ts-expect-error TS2367: no such status
  if ((await swerve.feedback(answer.decision, 1)) === "learnt") return;
  // @ts-expect-error TS2322: `key` is a text
  new Swerve("http://127.0.0.1:8350", { key: 7 });
  // @ts-expect-error TS2339: the client has no such method
  await swerve.observe("hurricane", ["team-page"]);
  // @ts-expect-error TS2345: nothing can be watched without a browser
  swerve.watch(answer.decision, [{}]);
}
