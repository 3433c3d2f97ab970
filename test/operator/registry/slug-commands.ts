import { expect } from 'chai';
import type { ScriptResult } from '../../support/command-line.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, type World } from '../../support/world.ts';

/** Commands that change slugs of an installation. */
export function slugCommands(world: World) {
  const run = (...args: string[]): Promise<ScriptResult> =>
    runCommand('scripts/backoffice.ts', args, world.environment);

  return {
    run,
    /**
     * Runs a command that must succeed.
     * @returns what it prints
     */
    runWell: async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await run(...args);
      expect(code, `${args.join(' ')}: ${stderr}`).to.equal(0);
      return stdout;
    },
    provision: (slug: string, ...more: string[]): Promise<ScriptResult> =>
      run('provision', slug, '--name', `${slug} Ltd`, '--admin-email', `a@${slug}.test`, ...more),
    /** Ends the time in which a former slug leads to its tenant. */
    endAlias: (slug: string): Promise<unknown> =>
      controlSql(world, 'update tenant_slugs set alias_until = now() where slug = ?', [slug]),
  };
}
