import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import ts from 'typescript';
import { root } from '../support/command-line.ts';
import { compile, compileProject } from '../support/compile.ts';

/** The sources of the package of the TypeScript client. */
export const clientSource = join(root, 'clients/typescript');

/** Runs `work` in a folder of an application that has installed the built package. */
export async function withBuiltClient<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'backoffice-client-'));
  try {
    const packageFolder = join(folder, 'node_modules', 'sales-back-office-client');
    await mkdir(packageFolder, { recursive: true });
    await cp(join(clientSource, 'package.json'), join(packageFolder, 'package.json'));
    compileProject(clientSource, join(packageFolder, 'dist'));
    for (const name of ['@types', 'undici-types']) {
      await symlink(join(root, 'node_modules', name), join(folder, 'node_modules', name));
    }
    await writeFile(join(folder, 'package.json'), '{ "type": "module" }');
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/**
 * Writes a program of the application, and compiles it.
 * @returns its path
 */
export async function compileProgram(folder: string, code: string): Promise<string> {
  const file = join(folder, 'program.ts');
  await writeFile(file, code);
  const module = ts.ModuleKind.NodeNext;
  compile([file], {
    noEmit: true,
    strict: true,
    module,
    target: ts.ScriptTarget.ES2022,
    types: ['node'],
  });
  return file;
}
