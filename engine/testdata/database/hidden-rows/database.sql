CREATE TABLE public.watchers (person text, tenant int);
ALTER TABLE public.watchers ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON public.watchers USING (tenant = 1);
GRANT SELECT ON public.watchers TO bothy_app;
