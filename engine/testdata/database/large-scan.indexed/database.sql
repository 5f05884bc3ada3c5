-- Five names in all: an index on them is there, and of no use.
CREATE TABLE public.watchers (id bigint, person text);
INSERT INTO public.watchers SELECT i, 'p' || i % 5 FROM generate_series(1, 20000) i;
CREATE INDEX ON public.watchers (person);
ANALYZE public.watchers;
GRANT SELECT ON public.watchers TO bothy_app;
