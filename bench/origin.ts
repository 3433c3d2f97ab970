const answers = new Map<string, Buffer>();

/** The bytes of an answer of the server at `ORIGIN`, asked for once; undefined when it has none at that path. */
export async function fetchAnswer(path: string): Promise<Buffer | undefined> {
  const answer = await fetch(`${process.env.ORIGIN}${path}`);
  if (!answer.ok) return undefined;
  const bytes = Buffer.from(await answer.arrayBuffer());
  answers.set(path, bytes);
  return bytes;
}

/** The same, if it has been asked for. */
export function fetchedAnswer(path: string): Buffer | undefined {
  return answers.get(path);
}

/** The one tag that they know: with it the client is told 304. */
export const tag = '"ceiling"';
