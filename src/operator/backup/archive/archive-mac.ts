import { createHmac, timingSafeEqual } from 'node:crypto';
import type { ArchiveManifest } from './archive-documents.ts';

/** The field at the end of a manifest, and the end of the document. */
const macField = /,\n "mac": "([0-9a-f]{64})"\n\}\n$/;
const documentEnd = '\n}\n';

/**
 * Returns the bytes of a manifest.
 * @param key of its code; undefined: it gets none
 */
export function manifestText(
  manifest: Omit<ArchiveManifest, 'mac'>,
  key: Buffer | undefined,
): string {
  const text = `${JSON.stringify(manifest, null, 1)}\n`;
  if (key === undefined) return text;

  return `${text.slice(0, -documentEnd.length)},\n "mac": "${computeMac(key, text).toString('hex')}"${documentEnd}`;
}

/** True if one of the keys has made the code of a manifest. */
export function isSignedBy(text: string, keys: readonly Buffer[]): boolean {
  const [field, mac] = macField.exec(text) ?? [];
  if (field === undefined || mac === undefined) return false;

  const signed = text.slice(0, -field.length) + documentEnd;
  const code = Buffer.from(mac, 'hex');

  return keys.some(key => timingSafeEqual(code, computeMac(key, signed)));
}

function computeMac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
