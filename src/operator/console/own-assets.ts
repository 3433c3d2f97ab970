import { readFile } from 'node:fs/promises';
import type { Content } from '../../docs/assets.ts';

/** The files of the console's own, by path. */
export const ownAssets: readonly (readonly [path: string, content: Content])[] = [
  ['/console.css', { type: 'css', render: () => ownFile('console.css') }],
  ['/console.js', { type: 'js', render: () => ownFile('console.js') }],
];

function ownFile(name: string): Promise<string> {
  return readFile(new URL(name, import.meta.url), 'utf8');
}
