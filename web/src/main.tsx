import './shell/theme'
import './tokens.css'
import './base.css'
import { QueryClientProvider } from '@tanstack/react-query'
import { createRoot } from 'react-dom/client'
import { Router } from 'wouter'
import { base } from './core/api'
import { queries } from './core/session'
import { App } from './shell/App'

createRoot(document.getElementById('root')!).render(
  <QueryClientProvider client={queries}>
    <Router base={base.pathname.replace(/\/$/, '')}>
      <App />
    </Router>
  </QueryClientProvider>,
)
