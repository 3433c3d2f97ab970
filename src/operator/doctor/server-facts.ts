import type pg from 'pg';

/** A database on a server, whoever it belongs to. */
export interface DatabaseFacts {
  name: string;
  /** A DROP DATABASE was interrupted: it can only be dropped. */
  broken: boolean;
  open: boolean;
  /** What others than its owner may do with it; `public` is everybody. */
  rights: { grantee: string; privilege: string }[];
}

export interface RoleFacts {
  name: string;
  login: boolean;
  /** Attributes that a login role of a tenant has no use for, such as `createdb`. */
  powers: string[];
  /** The roles it is a member of. */
  groups: string[];
  /** Databases with objects that it owns; null: something that all databases share. */
  owns: (string | null)[];
  /** Databases with objects that it was granted something on, the databases themselves not counted. */
  granted: (string | null)[];
}

export interface ServerFacts {
  databases: DatabaseFacts[];
  roles: Map<string, RoleFacts>;
  /** By the name of a group: who may do what it may. The operator is not counted. */
  members: Map<string, string[]>;
}

/** Everything that a server says about databases and roles in four questions, however many there are. */
export async function readServerFacts(client: pg.Client, prefix: string): Promise<ServerFacts> {
  const { rows: databases } = await client.query<DatabaseFacts>(
    `select datname as name, datconnlimit = -2 as broken, datallowconn as open,
            coalesce((select json_agg(json_build_object('privilege', privilege_type, 'grantee',
                        case grantee when 0 then 'public' else pg_get_userbyid(grantee) end))
                      from aclexplode(coalesce(datacl, acldefault('d', datdba))) where grantee <> datdba), '[]') as rights
       from pg_database order by datname`,
  );
  const { rows: roles } = await client.query<Omit<RoleFacts, 'owns' | 'granted'>>(
    `select rolname as name, rolcanlogin as login,
            array_remove(array[case when rolsuper then 'superuser' end, case when rolcreatedb then 'createdb' end,
              case when rolcreaterole then 'createrole' end, case when rolreplication then 'replication' end,
              case when rolbypassrls then 'bypassrls' end], null) as powers,
            array(select pg_get_userbyid(roleid)::text from pg_auth_members m where member = r.oid order by 1) as groups
       from pg_roles r where starts_with(rolname, $1)`,
    [`${prefix}_`],
  );
  const { rows: dependencies } = await client.query<{ role: string; owns: boolean; database: string | null }>(
    `select distinct rolname as role, deptype = 'o' as owns, datname as database
       from pg_shdepend s join pg_roles r on r.oid = refobjid left join pg_database d on d.oid = dbid
      where refclassid = 'pg_authid'::regclass and deptype in ('o', 'a') and starts_with(rolname, $1)
        and (deptype = 'o' or classid <> 'pg_database'::regclass)`,
    [`${prefix}_`],
  );
  // Who makes a role becomes a member that may hand it on, but does not have what it has.
  const { rows: members } = await client.query<{ name: string; member: string }>(
    `select distinct pg_get_userbyid(roleid)::text as name, pg_get_userbyid(member)::text as member
       from pg_auth_members where starts_with(pg_get_userbyid(roleid)::text, $1)
        and (inherit_option or set_option) and pg_get_userbyid(member) <> current_user`,
    [`${prefix}_`],
  );
  const byRole = Map.groupBy(dependencies, ({ role }) => role);
  const of = (role: string, owns: boolean) =>
    (byRole.get(role) ?? []).filter(each => each.owns === owns).map(({ database }) => database);
  return {
    databases,
    roles: new Map(
      roles.map(role => [role.name, { ...role, owns: of(role.name, true), granted: of(role.name, false) }]),
    ),
    members: new Map(
      [...Map.groupBy(members, ({ name }) => name)].map(([name, all]) => [name, all.map(({ member }) => member)]),
    ),
  };
}
