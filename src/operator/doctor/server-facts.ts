import type pg from 'pg';
import { withConnection } from '../../lib/postgres/connection.ts';

/** A database on a server, of this installation or of another. */
interface DatabaseFacts {
  name: string;
  owner: string;
  isOwnedBySuperuser: boolean;
  /** True if the login of this command may do what the owner may. */
  isOwn: boolean;
  /** True when a DROP DATABASE was interrupted: the database can only be dropped. */
  broken: boolean;
  /** True when the database accepts connections. */
  open: boolean;
  /** True if the login of this command has CONNECT, which its owner may have taken away. */
  mayConnect: boolean;
  /**
   * Privileges on the database of roles other than its owner; the grantee `public` means every
   * role.
   */
  grants: { grantee: string; privilege: string }[];
}

/** A role whose name begins with the prefix of the installation. */
export interface RoleFacts {
  name: string;
  /** True if the login of this command may alter, grant and drop it. */
  isOwn: boolean;
  login: boolean;
  /** Attributes that the login role of a tenant does not need, such as `createdb`. */
  attributes: string[];
  /** The roles that the role is a member of. */
  groups: string[];
  /** The roles that may alter, grant and drop the role. */
  admins: string[];
  /**
   * Databases in which the role owns objects; null stands for objects that all databases share.
   */
  ownsIn: (string | null)[];
  /**
   * Databases in which the role has privileges on objects; null as above. Privileges on a
   * database itself do not count.
   */
  grantedIn: (string | null)[];
}

/** The databases and roles of a server at one moment. */
export interface ServerFacts {
  /** The name of the login of this command. */
  login: string;
  /** True if the login of this command is a superuser. */
  isSuperuser: boolean;
  /** The database that the URL of the server names. */
  connectedTo: string;
  /** The databases by name. */
  databases: Map<string, DatabaseFacts>;
  /**
   * The owners of objects in databases of the installation whose rights the login does not have,
   * without superusers, by the name of the database.
   */
  ownersIn: Map<string, string[]>;
  /** The privileges of roles on databases that they do not own, by the name of the role. */
  grantsTo: Map<string, { database: string; privilege: string }[]>;
  /** The roles by name. */
  roles: Map<string, RoleFacts>;
  /**
   * The members of each group, by its name: the roles that have its privileges, except that of
   * the operator.
   */
  members: Map<string, string[]>;
}

/** Reads the databases and roles of a server. Takes five queries, however many there are. */
export async function readServerFacts(client: pg.Client, prefix: string): Promise<ServerFacts> {
  const { rows: databases } = await client.query<
    DatabaseFacts & { isSuperuser: boolean; login: string }
  >(
    `select datname as name, datconnlimit = -2 as broken, datallowconn as open, pg_get_userbyid(datdba)::text as owner,
            (select rolsuper from pg_roles r where r.oid = datdba) as "isOwnedBySuperuser",
            pg_has_role(datdba, 'usage') as "isOwn", has_database_privilege(d.oid, 'connect') as "mayConnect", current_user::text as login, current_setting('is_superuser')::boolean as "isSuperuser",
            coalesce((select json_agg(json_build_object('privilege', privilege_type, 'grantee',
                        case grantee when 0 then 'public' else pg_get_userbyid(grantee) end))
                      from aclexplode(coalesce(datacl, acldefault('d', datdba)))
                     where grantee <> datdba), '[]') as grants
       from pg_database d order by datname`,
  );

  const { rows: roles } = await client.query<Omit<RoleFacts, 'ownsIn' | 'grantedIn'>>(
    `select rolname as name, pg_has_role(oid, 'usage with admin option') as "isOwn", rolcanlogin as login,
            array_remove(array[case when rolsuper then 'superuser' end, case when rolcreatedb then 'createdb' end,
              case when rolcreaterole then 'createrole' end, case when rolreplication then 'replication' end,
              case when rolbypassrls then 'bypassrls' end], null) as attributes,
            array(select pg_get_userbyid(roleid)::text from pg_auth_members m
                   where member = r.oid order by 1) as groups,
            array(select distinct pg_get_userbyid(member)::text from pg_auth_members m
                   where roleid = r.oid and admin_option order by 1) as admins
       from pg_roles r where starts_with(rolname, $1)`,
    [`${prefix}_`],
  );

  const { rows: dependencies } = await client.query<{
    role: string;
    owns: boolean;
    database: string | null;
  }>(
    `select distinct rolname as role, deptype = 'o' as owns, datname as database
       from pg_shdepend s join pg_roles r on r.oid = refobjid left join pg_database d on d.oid = dbid
      where refclassid = 'pg_authid'::regclass and deptype in ('o', 'a') and starts_with(rolname, $1)
        and (deptype = 'o' or classid <> 'pg_database'::regclass)`,
    [`${prefix}_`],
  );

  // The creator of a role becomes a member of it that may grant it, but without its privileges:
  // such members do not count.
  const { rows: members } = await client.query<{ name: string; member: string }>(
    `select distinct pg_get_userbyid(roleid)::text as name, pg_get_userbyid(member)::text as member
       from pg_auth_members where starts_with(pg_get_userbyid(roleid)::text, $1)
        and (inherit_option or set_option) and pg_get_userbyid(member) <> current_user`,
    [`${prefix}_`],
  );

  // `reassign owned` in one database leaves the objects in others to the former login.
  const { rows: owners } = await client.query<{ database: string; owner: string }>(
    `select distinct datname as database, rolname as owner
       from pg_shdepend s join pg_database d on d.oid = dbid join pg_roles r on r.oid = refobjid
      where refclassid = 'pg_authid'::regclass and deptype = 'o' and starts_with(datname, $1)
        and not rolsuper and not pg_has_role(r.oid, 'usage')
      order by 1, 2`,
    [`${prefix}_`],
  );

  const dependenciesOf = Map.groupBy(dependencies, ({ role }) => role);
  const databasesOf = (role: string, owns: boolean) =>
    (dependenciesOf.get(role) ?? [])
      .filter(each => each.owns === owns)
      .map(({ database }) => database);
  const grants = databases.flatMap(({ name, grants }) =>
    grants.map(grant => ({ database: name, ...grant })),
  );

  return {
    login: databases[0]?.login ?? '',
    isSuperuser: databases[0]?.isSuperuser ?? false,
    connectedTo: client.database ?? '',
    databases: new Map(databases.map(database => [database.name, database])),
    ownersIn: new Map(
      [...Map.groupBy(owners, ({ database }) => database)].map(([name, rows]) => [
        name,
        rows.map(({ owner }) => owner),
      ]),
    ),
    grantsTo: Map.groupBy(grants, ({ grantee }) => grantee),
    roles: new Map(
      roles.map(role => [
        role.name,
        { ...role, ownsIn: databasesOf(role.name, true), grantedIn: databasesOf(role.name, false) },
      ]),
    ),
    members: new Map(
      [...Map.groupBy(members, ({ name }) => name)].map(([name, rows]) => [
        name,
        rows.map(({ member }) => member),
      ]),
    ),
  };
}

/** Returns the sizes in bytes of databases that this login may connect to, by their names. */
export async function readDatabaseSizes(
  adminUrl: string,
  names: readonly string[],
): Promise<Map<string, number>> {
  return withConnection(
    adminUrl,
    async client => {
      const { rows } = await client.query<{ name: string; bytes: number | null }>(
        `select datname as name,
                case when has_database_privilege(oid, 'connect') then pg_database_size(oid) end::float8 as bytes
           from pg_database
          where datname = any ($1)`,
        [names],
      );

      return new Map(rows.flatMap(({ name, bytes }) => (bytes === null ? [] : [[name, bytes]])));
    },
    { kind: 'doctor' },
  );
}
