CREATE TABLE public.watchers (person text);
GRANT SELECT ON public.watchers TO bothy_app;
