/*
 * Reads the few documents of S3 that the backup needs. Their elements have no attributes and are not nested in elements
 * of the same name, so that no XML parser is needed.
 */

/** Returns the text of the first element with this name; undefined when there is none. */
export function xmlText(document: string, name: string): string | undefined {
  const text = new RegExp(`<${name}>([^<]*)</${name}>`).exec(document)?.[1];
  return text === undefined ? undefined : decodeXml(text);
}

/** Returns the contents of all elements with this name. */
export function xmlBlocks(document: string, name: string): string[] {
  return [...document.matchAll(new RegExp(`<${name}>(.*?)</${name}>`, 'gs'))].map(match => match[1] ?? '');
}

/** Replaces character references (XML 1.0 §4.1). */
function decodeXml(text: string): string {
  const named: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };
  return text.replace(/&(?:#(\d+)|#x([0-9a-f]+)|(\w+));/gi, (whole, decimal, hex, name) => {
    if (decimal) return String.fromCodePoint(Number(decimal));
    if (hex) return String.fromCodePoint(Number.parseInt(hex, 16));
    return named[name] ?? whole;
  });
}
