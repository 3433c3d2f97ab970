import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { root } from '../support/command-line.ts';

/** The files of the admin page that the guide shows, by their names. */
export async function readAdminPage(): Promise<Record<string, string>> {
  const page = await readFile(join(root, 'docs/guide/admin-page.md'), 'utf8');
  const blocks = [...page.matchAll(/```tsx?\n(.*?)```/gs)].map(([, code = '']) => code);
  const [session = '', provider = '', live = '', app = ''] = blocks;

  return { 'session.ts': session, 'provider.ts': provider, 'live.tsx': live, 'app.tsx': app };
}
