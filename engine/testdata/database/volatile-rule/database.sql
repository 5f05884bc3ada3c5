CREATE FUNCTION public.pick(text) RETURNS text LANGUAGE sql AS $$SELECT $1$$;
