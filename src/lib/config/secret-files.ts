import { readFileSync, statSync } from 'node:fs';
import { codeOf } from '../narrow.ts';
import { cleanText } from './clean-text.ts';
import { projectPath } from './project-path.ts';

/**
 * The settings that hold a secret. Each can be given as the path of a file instead, in a
 * variable that ends in `_FILE`.
 */
export const secretVariables = [
  'DATABASE_URL',
  'MASTER_KEY',
  'MASTER_KEY_PREVIOUS',
  'REDIS_URL',
  'SMTP_URL',
  'AWS_ACCESS_KEY_ID',
  'AWS_SECRET_ACCESS_KEY',
  'AWS_SESSION_TOKEN',
] as const;

type Variables = Readonly<Record<string, string | undefined>>;

const othersMayRead = 0o004;
const maxBytes = 65_536;

/**
 * Reads the secrets that are given as files (`cleanText`).
 * @returns their values by the names of the settings, and a sentence for each file that cannot
 *   be used
 */
export function readSecretFiles(set: Variables): {
  values: Record<string, string>;
  errors: string[];
} {
  const values: Record<string, string> = {};
  const errors: string[] = [];
  for (const { name, path } of secretFiles(set)) {
    if (set[name] !== undefined) {
      errors.push(`${name} and ${name}_FILE are both set: unset one of them`);
      continue;
    }
    try {
      // Reading a named pipe or a terminal would wait for its other end.
      const state = statSync(path);
      if (!state.isFile()) {
        errors.push(`${name}_FILE names ${path}, which is not a regular file`);
        continue;
      }
      if (state.size > maxBytes) {
        errors.push(`${name}_FILE names ${path}, which has more than 64 KiB and so is no secret`);
        continue;
      }
      const text = decodeText(readFileSync(path));
      if (text === undefined) {
        errors.push(`${name}_FILE names ${path}, which is not text in UTF-8: save it as UTF-8`);
        continue;
      }
      values[name] = cleanText(text);
      if (values[name] === '') errors.push(`${name}_FILE names ${path}, which is empty`);
    } catch (error) {
      const code = codeOf(error);
      // A path that leads to no file may be the secret itself, given in the place of a path.
      const file = code === 'EACCES' ? `${path}, which` : 'a file that';
      errors.push(`${name}_FILE names ${file} cannot be read (${code})`);
    }
  }

  return { values, errors };
}

/**
 * Decodes UTF-8, and UTF-16 with its mark, as PowerShell and Notepad write it.
 * @returns undefined for other bytes
 */
function decodeText(bytes: Buffer): string | undefined {
  const mark = bytes.subarray(0, 2).toString('hex');
  const encoding = { fffe: 'utf-16le', feff: 'utf-16be' }[mark] ?? 'utf-8';

  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** Returns a sentence for each secret file that every login of the machine may read. */
export function secretFileWarnings(set: Variables): string[] {
  return secretFiles(set)
    .filter(
      ({ path }) => ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & othersMayRead) !== 0,
    )
    .map(
      ({ name }) =>
        `Every login of this machine may read the file of ${name}_FILE: run chmod 600 on it.`,
    );
}

function secretFiles(set: Variables): { name: string; path: string }[] {
  return secretVariables.flatMap(name => {
    const path = set[`${name}_FILE`];
    return path === undefined ? [] : [{ name, path: projectPath(path) }];
  });
}
