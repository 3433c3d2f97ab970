import { isRaw, PostgreSqlConnection, type RawQueryFragment } from '@mikro-orm/postgresql';
import { CompiledQuery } from 'kysely';

type Execute = PostgreSqlConnection['execute'];
type Platform = PostgreSqlConnection['platform'];

/**
 * MikroORM's connection, which sends texts and bytes beside the statement, as bound parameters.
 * MikroORM itself writes all values into the statement, and PostgreSQL writes the statement to
 * its log when it fails or takes long: with e-mail addresses, password hashes and tokens.
 *
 * Numbers, dates and booleans stay in the statement: their type would be lost, and PostgreSQL
 * would have to infer it.
 */
export class BoundConnection extends PostgreSqlConnection {
  override async execute(...[query, params, method, ctx]: Parameters<Execute>): Promise<never> {
    await this.ensureConnection();
    const { sql, params: values } =
      typeof query === 'string' ? { sql: query, params } : toRaw(query);
    const bound = bindValues(this.platform, sql, (values ?? []) as readonly unknown[]);
    return this.executeQuery(bound.sql, async () =>
      this.transformRawResult<never>(
        await (ctx ?? this.getClient()).executeQuery(bound),
        method ?? 'all',
      ),
    );
  }
}

function toRaw(query: Exclude<Parameters<Execute>[0], string>): RawQueryFragment {
  return 'toRaw' in query ? query.toRaw() : query;
}

/**
 * Replaces the placeholders of MikroORM: `?` for a value, `??` for an identifier, `\?` for a
 * question mark.
 */
function bindValues(platform: Platform, sql: string, params: readonly unknown[]): CompiledQuery {
  const values: unknown[] = [];

  const format = (text: string, textParams: readonly unknown[]): string => {
    if (textParams.length === 0) return text;
    let next = 0;
    return text.replace(/\\\?|\?\??/g, placeholder => {
      if (placeholder === '\\?') return '?';
      const value = textParams[next++];
      if (placeholder === '??') return platform.quoteIdentifier(String(value));
      if (isRaw(value)) return format(value.sql, value.params);
      if (typeof value === 'string' || ArrayBuffer.isView(value)) return `$${values.push(value)}`;
      return platform.quoteValue(value);
    });
  };

  return CompiledQuery.raw(format(sql, params), values);
}
