CREATE TABLE public.watchers (person text);
ALTER TABLE public.watchers ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON public.watchers TO bothy_app;
