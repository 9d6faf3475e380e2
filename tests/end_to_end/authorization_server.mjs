// The authorization server of oidc-provider, with login forms for anybody. Prints its issuer when it listens.
// The client `bot` gets tokens by its secret, `brief` gets tokens of one second.
import http from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(`${process.cwd()}/`);
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

let answer;
const server = http.createServer((request, response) => answer(request, response));
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const program = (id) => ({
    client_id: id, client_secret: 'secret', grant_types: ['client_credentials'], redirect_uris: [], response_types: [],
  });
  const provider = new Provider(issuer, {
    clients: [program('bot'), program('brief')],
    scopes: ['openid', 'offline_access', 'memory'],
    features: {
      registration: { enabled: true },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (ctx, resource, client) => ({
          scope: 'memory', audience: resource, accessTokenFormat: 'jwt', accessTokenTTL: client.clientId === 'brief' ? 1 : 600,
        }),
        useGrantedResource: () => true,
      },
    },
    findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  });
  answer = provider.callback();
  console.log(issuer);
});
