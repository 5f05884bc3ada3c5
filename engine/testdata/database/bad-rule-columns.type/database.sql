CREATE TABLE public.watchers (id uuid, person text);
GRANT SELECT ON public.watchers TO bothy_app;
