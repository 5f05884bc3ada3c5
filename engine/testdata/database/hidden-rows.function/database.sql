-- A function of the asker's own rights that reads a table with policies, one that calls another which does, one
-- that reads it as its owner, whom the policies do not bind, and one that reads nothing.
CREATE TABLE public.watchers (person text, type text, tenant int);
ALTER TABLE public.watchers ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON public.watchers USING (tenant = 1);
GRANT SELECT ON public.watchers TO bothy_app;
CREATE FUNCTION public.of_tenant(t text) RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN (SELECT person FROM public.watchers w WHERE w.type = t); END $$;
CREATE FUNCTION public.inner_watchers(t text) RETURNS SETOF public.watchers STABLE BEGIN ATOMIC SELECT * FROM public.watchers w WHERE w.type = t; END;
CREATE FUNCTION public.outer_watchers(t text) RETURNS SETOF public.watchers LANGUAGE sql STABLE AS 'SELECT * FROM public.inner_watchers(t)';
CREATE FUNCTION public.as_owner(t text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS 'SELECT person FROM public.watchers w WHERE w.type = t';
CREATE FUNCTION public.shout(t text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper(t)';
