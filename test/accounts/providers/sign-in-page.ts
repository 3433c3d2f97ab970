import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';

/** A page of a tenant, on an origin of its own. */
export interface SignInPage {
  readonly origin: string;
  /** Sets the text of the page, at every path. */
  show(html: string): void;
  close(): Promise<void>;
}

/** Starts a server of one page, and of the library that it loads. */
export async function startSignInPage(): Promise<SignInPage> {
  const library = createRequire(import.meta.url)
    .resolve('oidc-client-ts')
    .replace(/dist\/.*$/, 'dist/browser/oidc-client-ts.min.js');
  // As a bundler would make a module of it: the build for browsers sets one variable.
  const script = `${await readFile(library, 'utf8')}\nexport const { UserManager } = oidc;`;
  let page = '';

  const server = createServer((request, response) => {
    const isScript = request.url === '/oidc-client-ts.js';
    response
      .writeHead(200, { 'Content-Type': isScript ? 'text/javascript' : 'text/html' })
      .end(isScript ? script : page);
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;

  return {
    origin: `http://127.0.0.1:${port}`,
    show: html => {
      page = html;
    },
    close: async () => {
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };
}
