// Runs in the browser: starts Swagger UI, with the parts of its page replaced that screen
// readers cannot use.

import { createLogin, loginBox } from './login.js';

/**
 * A Swagger UI plugin:
 * https://swagger.io/docs/open-source-tools/swagger-ui/customization/plugin-api/
 */
function accessibleParts({ React }) {
  const { createElement: h, useEffect, useRef } = React;

  /**
   * The page below the header. Swagger UI's own layout has a second `main` and skips a level of
   * headings.
   */
  function ExplorerLayout({ getComponent, specSelectors }) {
    const part = name => h(getComponent(name, true));
    const status = specSelectors.loadingStatus();
    if (status === 'failed') return h('div', { className: 'swagger-ui wrapper' }, part('errors'));
    if (status !== 'success') return h('p', { className: 'swagger-ui wrapper' }, 'Loading …');
    return h(
      'div',
      { className: 'swagger-ui' },
      h('div', { className: 'wrapper' }, part('InfoContainer')),
      h('div', { className: 'wrapper' }, part('LoginBox')),
      h(
        'div',
        { className: 'wrapper endpoints' },
        h('h2', null, 'Endpoints'),
        part('AuthorizeBtnContainer'),
      ),
      h('div', { className: 'wrapper' }, part('errors'), part('operations')),
    );
  }

  /**
   * The responses of an operation. In the original, each table is a landmark without a name of
   * its own; and the keyboard does not reach examples and responses, which scroll when they are
   * long.
   */
  const accessibleResponses = Responses => props => {
    const box = useRef(null);
    useEffect(() => {
      for (const table of box.current.querySelectorAll('table[role=region]')) {
        table.removeAttribute('role');
      }
      for (const text of box.current.querySelectorAll('pre')) text.tabIndex = 0;
    });
    return h('div', { ref: box }, h(Responses, props));
  };

  /**
   * The parameters of an operation. In the original, the lists of values and of examples have
   * no names.
   */
  const accessibleParameters = Parameters => props => {
    const box = useRef(null);
    useEffect(() => {
      for (const row of box.current.querySelectorAll('tr[data-param-name]')) {
        for (const list of row.querySelectorAll('select')) {
          list.ariaLabel = `${row.dataset.paramName}${list.matches('.examples-select *') ? ', examples' : ''}`;
        }
      }
    });
    return h('div', { ref: box }, h(Parameters, props));
  };

  /**
   * The inputs of items of lists, by type and format. Swagger UI looks for one of each format,
   * and warns where it has none.
   */
  const items = ['integer_int32', 'integer_int64', 'string_uuid', 'string_idn-email'].map(kind => [
    `JsonSchema_${kind}`,
    props => h(props.getComponent('JsonSchema_string'), props),
  ]);

  return {
    components: { ExplorerLayout, ...Object.fromEntries(items) },
    wrapComponents: {
      // Text in place of a link in a button: the button expands the section that the link leads
      // to.
      DeepLink: () => props => h('span', null, props.text),
      TextArea: Original => props => h(Original, { 'aria-label': 'Request body', ...props }),
      CloseIcon: Original => props =>
        h(Original, { ...props, role: 'img', 'aria-hidden': undefined, 'aria-label': 'Close' }),
      // The text of each button is its name: a label with other words hides it from speech
      // control.
      Button: Original => props => h(Original, { ...props, 'aria-label': undefined }),
      parameters: accessibleParameters,
      responses: accessibleResponses,
    },
  };
}

/**
 * Leaves out the examples of parameters of paths: Swagger UI would fill them in, and one click
 * would delete the record 1.
 */
const emptyPaths = {
  statePlugins: {
    spec: { wrapActions: { updateJsonSpec: update => document => update(withoutIds(document)) } },
  },
};

function withoutIds(document) {
  for (const operations of Object.values(document.paths ?? {})) {
    for (const { parameters } of Object.values(operations)) {
      for (const parameter of parameters) {
        if (parameter.in === 'path') delete parameter.example;
      }
    }
  }

  return document;
}

const login = createLogin(token =>
  token === undefined ? ui.authActions.logout(['bearer']) : ui.preauthorizeApiKey('bearer', token),
);
document.documentElement.classList.toggle(
  'dark-mode',
  matchMedia('(prefers-color-scheme: dark)').matches,
);
const ui = SwaggerUIBundle({
  url: '/docs/openapi.json',
  dom_id: '#explorer',
  deepLinking: true,
  tryItOutEnabled: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: -1,
  validatorUrl: null,
  plugins: [accessibleParts, emptyPaths, loginBox(login)],
  requestInterceptor: login.renew,
  layout: 'ExplorerLayout',
});
