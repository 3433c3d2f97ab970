/** The parts in which the configurations of nginx in the drills differ. */
interface NginxParts {
  /** The folder for everything that nginx writes. */
  readonly folder: string;
  /** Host and port of each process of the service. */
  readonly services: readonly string[];
  /** Directives of the server, beside its location. */
  readonly server: string;
  /** Directives of the location, beside those that keep connections to the service open. */
  readonly location?: string;
}

/** Returns a configuration of nginx that balances over processes of the service. */
export function nginxConfig({ folder, services, server, location = '' }: NginxParts): string {
  return `
daemon off;
pid ${folder}/nginx.pid;
error_log ${folder}/nginx.log;
events {}
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  upstream service {
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
  }
}
`;
}
