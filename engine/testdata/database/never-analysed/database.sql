CREATE TABLE public.watchers (person text PRIMARY KEY, note text) WITH (autovacuum_enabled = false);
INSERT INTO public.watchers SELECT 'p' || i, repeat('x', 100) FROM generate_series(1, 20000) i;
GRANT SELECT ON public.watchers TO bothy_app;
