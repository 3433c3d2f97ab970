-- Records of the demo tenant that `npm start` makes, so that every list shows something at the first call. Runs once,
-- as one transaction, when the tenant is provisioned. `demo.user_id` is the id of the demo user.

insert into order_statuses (name, weighting) values
  ('New', 10), ('Confirmed', 20), ('Shipped', 30), ('Invoiced', 40), ('Closed', 50);

insert into tax_codes (code, name, rate) values
  ('STD', 'Standard rate', 20), ('RED', 'Reduced rate', 5), ('ZERO', 'Zero rate', 0);

insert into system_options (system_option_type_id, value) values
  (1, 'Europe/London'), (2, 'yyyy-MM-dd'), (3, 'Thank you for your order.');

insert into entities (name, entity_type, status_id, currency_id, country_code)
select e.name, e.entity_type, s.id, c.id, e.country_code
  from (values
    ('Northwind Traders', 'customer', 'Active', 'GBP', 'GB'),
    ('Alpine Sports', 'customer', 'Prospect', 'CHF', 'CH'),
    ('Contoso Components', 'supplier', 'Active', 'EUR', 'DE'),
    ('Fabrikam Foods', 'customer', 'Prospect', 'USD', 'US')) e(name, entity_type, status, currency, country_code)
  join entity_statuses s on s.title = e.status
  join currencies c on c.code = e.currency;

insert into promotions (promo_code, name, discount_type, discount_value, currency_id, entity_ids) values
  ('SPRING10', 'Spring sale', 'Percentage', 10, null, '{}'),
  ('WELCOME5', 'Five pounds off the first order', 'Amount', 5, (select id from currencies where code = 'GBP'),
    array(select id from entities where name = 'Northwind Traders'));

insert into activities (created_at, activity_code, user_id, comment, entity_id, screen, recorded_by, recorded_from)
select now() - a.age, a.code, u.id, a.comment, e.id, a.screen, u.id, '127.0.0.1'
  from (values
    (interval '3 hours', 100, 'Called to introduce the spring sale', 'Alpine Sports', 'Customers'),
    (interval '2 hours', 110, 'Sent an offer for 200 units', 'Northwind Traders', 'Orders'),
    (interval '1 hour', 120, 'Asked for the delivery date', 'Contoso Components', 'Suppliers'))
    a(age, code, comment, entity, screen)
  join entities e on e.name = a.entity,
  (select current_setting('demo.user_id')::bigint as id) u
 order by a.age desc;
