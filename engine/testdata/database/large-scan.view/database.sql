CREATE TABLE public.people (id bigint, person text, active boolean);
INSERT INTO public.people SELECT i, 'p' || i, i % 2 = 0 FROM generate_series(1, 20000) i;
ANALYZE public.people;
CREATE VIEW public.watchers AS SELECT person FROM public.people WHERE active;
GRANT SELECT ON public.watchers TO bothy_app;
