import { readFile } from 'node:fs/promises';

/** A file that pages load, or a page, rendered when it is first requested. */
export interface Content {
  readonly type: 'html' | 'css' | 'js' | 'json' | 'svg';
  readonly render: () => string | Promise<string>;
}

export const mediaTypes: Readonly<Record<Content['type'], string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  json: 'application/json; charset=utf-8',
  svg: 'image/svg+xml',
};

/**
 * Allows nothing from another origin, and nothing inline. Swagger UI has images in `data:`
 * URLs.
 */
export const contentSecurityPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<rect width="16" height="16" rx="3" fill="#0b5fa5"/>
<path d="M4 12V8m4 4V4m4 8V6" stroke="#fff" stroke-width="2" stroke-linecap="round"/></svg>
`;

type Asset = readonly [path: string, content: Content];

/** The files that every page loads, by path. */
export const sharedAssets: readonly Asset[] = [
  ['/css/base.css', { type: 'css', render: () => ownFile('base.css') }],
  ['/favicon.ico', { type: 'svg', render: () => icon }],
];

/** The files that each page of the documentation and of the console loads, by path. */
export const assets: readonly Asset[] = [
  ...sharedAssets,
  ['/docs/element.js', { type: 'js', render: () => ownFile('element.js') }],
  ['/docs/docs.js', { type: 'js', render: () => ownFile('docs.js') }],
  ['/css/docs.css', { type: 'css', render: () => ownFile('style.css') }],
];

/** Reads a file of this folder. */
function ownFile(name: string): Promise<string> {
  return readFile(new URL(name, import.meta.url), 'utf8');
}
