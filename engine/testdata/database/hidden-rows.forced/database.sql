CREATE TABLE public.watchers (person text);
ALTER TABLE public.watchers OWNER TO bothy_app;
ALTER TABLE public.watchers ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.watchers FORCE ROW LEVEL SECURITY;
