CREATE TABLE public.watchers (person text, types text[]);
GRANT SELECT ON public.watchers TO bothy_app;
