CREATE TABLE public.watchers (person text, address text);
GRANT SELECT (address) ON public.watchers TO bothy_app;
