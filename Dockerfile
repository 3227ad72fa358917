# heedful without torch: watch and audit runs, write reports, check environments. See docs/getting_started.md.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/heedful-*.whl)[parquet]" && rm -r /wheels
RUN useradd --create-home heedful
USER heedful
WORKDIR /runs
ENTRYPOINT ["heedful"]
CMD ["--help"]
