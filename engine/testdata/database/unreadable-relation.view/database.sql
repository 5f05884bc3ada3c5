CREATE TABLE public.people (person text);
CREATE VIEW public.watchers AS SELECT person FROM public.people;
ALTER VIEW public.watchers OWNER TO bothy_owner;
GRANT SELECT ON public.watchers TO bothy_app;
