// A page, compiled with the types of a browser. Each line after an `@ts-expect-error` is refused, for the reason named there.
import { Swerve, type Click, type WatchOptions } from "swerve-client";

const swerve = new Swerve("https://swerve.example.com");
const options: WatchOptions = { share: 0.75, ms: 100, links: "a, button" };
const stop: () => void = swerve.watch("a decision", document.querySelectorAll<HTMLElement>("[data-swerve]"), options);
stop();
swerve.watch(null, [document.body]);

const clicks: readonly Click[] = ["storm-warning", 2, { kind: "cart", result: "team-page", value: 3.5, at: "2024-09-26T14:00:00Z" }];
const sent: boolean = swerve.beacon("a decision", clicks, ["storm-warning", "team-page"]);
swerve.beacon("a decision");
export { sent };

// @ts-expect-error TS2345: text is no element
swerve.watch("a decision", ["storm-warning"]);
// @ts-expect-error TS2345: a document is no element
swerve.watch("a decision", [document]);
// @ts-expect-error TS2345: one element is not several
swerve.watch("a decision", document.body);
// @ts-expect-error TS2353: `seconds` is no option
swerve.watch("a decision", [document.body], { seconds: 1 });
// @ts-expect-error TS2353: `results` is no field of an event
swerve.beacon("a decision", { results: "storm-warning" });
// @ts-expect-error TS2345: nor is true a click
swerve.beacon("a decision", true);
// @ts-expect-error TS2341: what is sent with requests is not public
swerve.headers.authorization = "Bearer KEY";
