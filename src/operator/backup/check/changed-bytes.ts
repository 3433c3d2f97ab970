import { SealedBytes } from '../archive/archive-bytes.ts';
import type { ArchiveRow } from '../archive-rows.ts';
import type { Target } from '../target/target.ts';

/**
 * Reads an archive without opening it, and compares its bytes with those that were written.
 * @returns undefined when they are the same; else the difference, as the end of a sentence
 * @throws the error of the target, as it is
 */
export async function findChangedBytes(
  target: Target,
  { name, bytes }: Pick<ArchiveRow, 'name' | 'bytes'>,
): Promise<string | undefined> {
  const sealed = new SealedBytes();
  for await (const chunk of await target.read(name)) {
    sealed.add(chunk);
  }

  const { size, sha256 } = sealed.end();
  if (size === bytes?.size && sha256 === bytes.sha256) return undefined;

  return 'its SHA-256 is not that of the bytes that were written';
}
