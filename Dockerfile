# The server of a team's memory (docs/team.md). It needs no writable file system but /tmp.
# `docker build` does not run in our tests: tests/packaging/test_deploy.py carries out the COPY lines and deploy/install.
FROM python:3.13-slim-bookworm AS build
WORKDIR /src
RUN pip install --no-cache-dir "uv>=0.13,<1"
COPY pyproject.toml README.md LICENSE ./
COPY deploy/install deploy/install
COPY prompts prompts
COPY resources resources
COPY tools tools
COPY mcp_server mcp_server
RUN deploy/install /opt/context-manager

FROM python:3.13-slim-bookworm
# Without Perl, git lacks only commands that the export does not use, and the image is 48 MB smaller.
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/* \
    && dpkg --purge --force-depends perl perl-modules-5.36 libperl5.36 liberror-perl git-man \
    && install -d -o 10001 -g 10001 /git
COPY --from=build /opt/context-manager /opt/context-manager
ENV PATH=/opt/context-manager/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 8765
HEALTHCHECK CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8765/readyz', timeout=5)"]
ENTRYPOINT ["context-manager-mcp"]
CMD ["--http", "--host", "0.0.0.0"]
