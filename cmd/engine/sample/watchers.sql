-- Who wants to hear of which events: a table of the application, which the query rule of consumers.yaml joins.
CREATE TABLE IF NOT EXISTS public.watchers (
    id     bigint PRIMARY KEY,
    person text   NOT NULL,
    types  text[] NOT NULL
);

INSERT INTO public.watchers (id, person, types) VALUES
    (1, 'alex',  '{order.placed,order.paid,order.shipped,order.cancelled}'),
    (2, 'sam',   '{order.placed,order.paid}'),
    (3, 'robin', '{order.shipped}'),
    (4, 'kim',   '{order.cancelled}'),
    (5, 'noor',  '{order.paid,order.cancelled}'),
    (6, 'jules', '{order.placed}'),
    (7, 'mika',  '{user.registered}'),
    (8, 'toni',  '{order.shipped,order.cancelled}')
ON CONFLICT (id) DO NOTHING;
