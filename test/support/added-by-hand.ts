/** SQL of what an operator adds to the database of a tenant that has a currency CHF. */
export const addByHand = `
  create type mood as enum ('sad', 'happy');
  alter table currencies add "Rate of tax" numeric(5, 2), add mood mood;
  update currencies set "Rate of tax" = 7.70, mood = 'happy' where code = 'CHF';
  create table notes (id serial primary key, at timestamptz, words text[]);
  insert into notes (at, words) values ('2026-01-02T03:04:05Z', '{a, "b c"}')`;

/** SQL that returns it, with the types of its columns. */
export const readAddedByHand = `
  select pg_typeof("Rate of tax")::text as rate_type, "Rate of tax"::text as rate, mood::text, notes.id,
         pg_typeof(at)::text as at_type, at::text, words
    from currencies, notes where code = 'CHF'`;

/** The words with which `doctor` names the first of them. */
export const handMadeDifference = /(?:Rate of tax|mood|notes)\S* is not part of it/;
