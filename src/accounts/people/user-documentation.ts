/** The documentation of every route of users. */
export const userDocumentation = {
  tag: 'User',
  description:
    'The people of the tenant who log in. A caller of scope `Self` sees itself and the users of ' +
    'its own entity, and manages nobody. Nobody manages a user who has a permission that they do ' +
    'not have themselves.',
};
