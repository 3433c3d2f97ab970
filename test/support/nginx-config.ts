/** The parts of every configuration of nginx in the drills. */
interface NginxFrame {
  /** The folder for everything that nginx writes. */
  readonly folder: string;
  /** The maximum number of connections of a worker. The default is that of nginx. */
  readonly connections?: number;
}

/**
 * Returns a configuration of nginx.
 * @param lines directives of `http`, such as servers
 */
export function nginxFrame({ folder, connections = 512 }: NginxFrame, lines: string): string {
  return `
daemon off;
worker_rlimit_nofile 8192;
pid ${folder}/nginx.pid;
error_log ${folder}/nginx.log;
events { worker_connections ${connections}; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  ${lines}
}
`;
}

/** The parts in which the configurations of balancers differ. */
interface NginxParts extends NginxFrame {
  /** Host and port of each process of the service. */
  readonly services: readonly string[];
  /** Directives of the server, beside its location. */
  readonly server: string;
  /** Directives of the location, beside those that keep connections to the service open. */
  readonly location?: string;
}

/** Returns a configuration of nginx that balances over processes of the service. */
export function nginxConfig({ services, server, location = '', ...frame }: NginxParts): string {
  return nginxFrame(
    frame,
    `upstream service {
${services.map(service => `    server ${service};`).join('\n')}
    keepalive 32;
  }
  server {
    ${server}
    location / {
      proxy_pass http://service;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      ${location}
    }
  }`,
  );
}
